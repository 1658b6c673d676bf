"""The OpenAPI document and its HTML page."""

import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from tests.server.http.http_relay import HttpRelay
from waypost.server.http.contract import NoParameters
from waypost.server.http.openapi import make_document
from waypost.server.http.operations import OPERATIONS

OPERATION_IDS = [one.name for one in OPERATIONS]


def references(part: Any) -> set[str]:
    """Yield every schema reference."""
    if isinstance(part, dict):
        found = {part["$ref"]} if "$ref" in part else set()
        return found.union(*(references(one) for one in part.values()))
    if isinstance(part, list):
        return set().union(*(references(one) for one in part))
    return set()


def test_every_operation_is_described() -> None:
    paths = make_document(OPERATIONS)["paths"]
    described = {(m.upper(), path) for path, methods in paths.items() for m in methods}
    assert described == {(one.method, one.path) for one in OPERATIONS}


def test_names_of_operations_are_unique() -> None:
    assert len(set(OPERATION_IDS)) == len(OPERATION_IDS)


def test_every_schema_is_defined_and_used() -> None:
    document = make_document(OPERATIONS)
    known = {f"#/components/schemas/{name}" for name in document["components"]["schemas"]}
    assert references(document) == known


@pytest.mark.parametrize("operation", OPERATIONS, ids=OPERATION_IDS)
def test_the_parameters_of_a_path_are_fields_of_its_struct(operation: Any) -> None:
    fields = set(operation.parameters.__struct_encode_fields__)
    assert set(operation.path_names) <= fields
    assert operation.method != "GET" or operation.body.read is None
    assert operation.parameters is NoParameters or fields


async def test_the_document_is_served(served: HttpRelay) -> None:
    answered = await served.call("GET", "/openapi.json")
    assert answered.json() == json.loads(json.dumps(make_document(OPERATIONS)))
    assert answered.json()["openapi"] == "3.1.0"


class Links(HTMLParser):
    """The links and the ids of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.places: set[str] = set()
        self.tags: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        for name, value in attrs:
            if name in ("href", "src", "action"):
                self.targets.add(value or "")
            elif name == "id":
                self.places.add(value or "")


async def test_the_page_loads_no_other_resource(served: HttpRelay) -> None:
    page = await served.call("GET", "/docs")
    links = Links()
    links.feed(page.text)
    outside = {target for target in links.targets if not target.startswith("#")}
    assert outside == {"/openapi.json"}
    assert not links.tags & {"script", "link", "img", "iframe"}
    assert not re.search(r"url\(|@import", page.text)
    assert "default-src 'none'" in page.headers["content-security-policy"]


async def test_every_link_on_the_page_has_a_target(served: HttpRelay) -> None:
    links = Links()
    links.feed((await served.call("GET", "/docs")).text)
    assert {target[1:] for target in links.targets if target.startswith("#")} <= links.places
    assert set(OPERATION_IDS) <= links.places
