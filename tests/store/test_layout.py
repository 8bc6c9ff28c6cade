"""A new database is made; one with another layout is refused and left alone; in both databases."""

from zlib import crc32

import pytest
from sqlalchemy import inspect, select, text

from dartsim.core.errors import LayoutUnknown
from dartsim.store.database import prepare
from dartsim.store.tables import LAYOUT, LAYOUT_KEY, META, METADATA


def contents(engine):
    """Return all that a database holds: its tables with their columns and indexes, and their rows."""
    with engine.connect() as connection:
        found = inspect(connection)
        return {
            table: (
                [column["name"] for column in found.get_columns(table)],
                sorted(index["name"] for index in found.get_indexes(table)),
                sorted(map(str, connection.execute(text(f"select * from {table}")))),
            )
            for table in found.get_table_names()
        }


def test_a_new_database_has_all_tables_and_the_present_layout(place):
    engine = place.engine()
    prepare(engine)
    with engine.connect() as connection:
        assert connection.scalar(select(META.c.value).where(META.c.key == LAYOUT_KEY)) == LAYOUT
    found = {name: columns for name, (columns, _, _) in contents(engine).items()}
    assert found == {table.name: [column.name for column in table.columns] for table in METADATA.sorted_tables}


def test_a_database_that_is_opened_again_is_left_as_it_is(place):
    prepare(place.engine())
    before = contents(place.engine())
    prepare(place.engine())
    assert contents(place.engine()) == before


@pytest.mark.parametrize("change", ["update meta set value = '77' where key = 'layout'", "drop table meta"])
def test_another_layout_is_refused_and_left_alone(place, change):
    prepare(place.engine())
    with place.engine().begin() as connection:
        connection.execute(text(change))
    before = contents(place.engine())
    with pytest.raises(LayoutUnknown, match="and this dartsim reads layout 2 only; give the run another folder"):
        place.store()
    assert contents(place.engine()) == before


def test_the_database_of_another_program_is_refused(place):
    with place.engine().begin() as connection:
        connection.execute(text("create table customers (name varchar)"))
    with pytest.raises(LayoutUnknown, match="holds tables of another program \\(customers\\)"):
        place.store()


def test_other_tables_need_another_layout_number():
    columns = [f"{table.name}.{column.name}" for table in METADATA.sorted_tables for column in table.columns]
    assert (LAYOUT, crc32("\n".join(sorted(columns)).encode())) == ("2", 1035051063)
