"""Settings of Hypothesis for every test."""

from hypothesis import settings

# No deadline: a busy machine is slow, not wrong. Examples stay random from run to run, so that
# every run looks somewhere new; the printed blob brings a failure back on another machine.
settings.register_profile("ci", deadline=None, derandomize=False, print_blob=True)
settings.load_profile("ci")
