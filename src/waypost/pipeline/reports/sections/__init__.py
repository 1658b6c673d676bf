"""The sections of a report: sentences, charts and tables about the data, in reading order."""

from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.sections.inboxes import (
    latency_section,
    pressure_section,
)
from waypost.pipeline.reports.sections.incidents import (
    anomalies_section,
    breakers_section,
    dead_letters_section,
    loops_section,
)
from waypost.pipeline.reports.sections.model import Section
from waypost.pipeline.reports.sections.senders import senders_section, tiers_section
from waypost.pipeline.reports.sections.traffic import (
    connections_section,
    rejections_section,
    traffic_section,
)


def all_sections(report: ReportData) -> list[Section]:
    """Return all sections; one without data says so in its sentence."""
    return [
        traffic_section(report),
        rejections_section(report),
        latency_section(report),
        pressure_section(report),
        tiers_section(report),
        senders_section(report),
        breakers_section(report),
        dead_letters_section(report),
        loops_section(report),
        anomalies_section(report),
        connections_section(report),
    ]
