"""Files that are mostly alike: the same records as one by one, and one object for what they share."""

import dataclasses
import json

import pytest

from devwidget.extras.ranks.records.alike_files import AlikeFiles
from devwidget.records.errors import UnreadableError
from devwidget.records.loading.json_io import loads
from devwidget.records.schema.message import Message
from devwidget.records.schema.record import dumps
from tests.extras.ranks.records.made_up import report, reports

TEXTS = [dumps(said) for said in reports((("dp", 4), ("tp", 2)), layers=3)]


def test_they_are_read_as_one_by_one_and_share_what_is_equal():
    alike = AlikeFiles()
    found = [alike.loads(text) for text in TEXTS]
    assert found == [loads(text) for text in TEXTS]
    assert len({id(each.model) for each in found}) == len({each.model for each in found})
    assert len({id(each.stack) for each in found}) == 1


def test_a_message_of_one_file_is_no_message_of_another():
    said = report(0, 2, reports((("dp", 2),))[0].model)
    texts = [dumps(dataclasses.replace(said, note=note)) for note in (Message("it has {count}", count=3), "it has 3")]
    alike = AlikeFiles()
    assert [type(alike.loads(text).note) for text in texts] == [Message, str]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace('"rank": 3', '"rank": -3'),
        lambda text: text.replace('"rank": 3', '"rank": 3, "rank": 3'),
        lambda text: text.replace('"holdings": [[]', '"holdings": [[], 7'),
        lambda text: text.replace('"devwidget": 1', '"devwidget": 9'),
        lambda text: text[:-1],
        lambda text: text.replace('"messages": {}', '"messages": {"a": 3}'),
    ],
)
def test_what_is_wrong_is_said_as_it_is_of_one_file(damage):
    alike = AlikeFiles()
    for text in TEXTS[:3]:
        alike.loads(text)
    damaged = damage(TEXTS[3])
    assert damaged != TEXTS[3]
    with pytest.raises(UnreadableError) as alone:
        loads(damaged)
    with pytest.raises(UnreadableError) as told:
        alike.loads(damaged)
    assert str(told.value) == str(alone.value)


def test_other_ways_to_write_the_same_are_read_too():
    alike = AlikeFiles()
    assert alike.loads(json.dumps(json.loads(TEXTS[0]), indent=1)) == loads(TEXTS[0])
    more = TEXTS[0].replace('"data": {', '"data": {"of_a_newer_version": [1, 2], ')
    assert alike.loads(more) == loads(TEXTS[0])
