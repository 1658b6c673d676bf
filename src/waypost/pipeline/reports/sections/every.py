"""The sections of a report, in the order they are read."""

from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.sections.inboxes import (
    latency_section,
    pressure_section,
)
from waypost.pipeline.reports.sections.incidents import (
    anomalies_section,
    breakers_section,
    connections_section,
    dead_letters_section,
    loops_section,
)
from waypost.pipeline.reports.sections.model import Section
from waypost.pipeline.reports.sections.senders import senders_section, tiers_section
from waypost.pipeline.reports.sections.traffic import rejections_section, traffic_section


def every_section(facts: Facts) -> list[Section]:
    """All sections; one that has nothing to show says so."""
    return [
        traffic_section(facts),
        rejections_section(facts),
        latency_section(facts),
        pressure_section(facts),
        tiers_section(facts),
        senders_section(facts),
        breakers_section(facts),
        dead_letters_section(facts),
        loops_section(facts),
        anomalies_section(facts),
        connections_section(facts),
    ]
