"""Settings of Hypothesis for every test, and of every Java that a test starts."""

import os

from hypothesis import settings

# No deadline: a busy machine is slow, not wrong. Examples are random from run to run, so that
# every run looks somewhere new; the printed blob brings a failure back on another machine. A gate
# has to give the same answer for the same commit, so in CI they are always the same.
settings.register_profile(
    "waypost", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True
)
settings.load_profile("waypost")

# Jobs in tests are over before a better compiler would have paid for itself.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
