"""A stream is searched with a table of queries, as of arrival: what the table does triggers nothing."""

from __future__ import annotations

import runpy
from pathlib import Path

import disturbed
import pytest

import headrace as hr
from headrace.base.errors import InvalidPlan, PlanChanged, SealedColumn, StepFailed, UnknownColumn, WrongColumnType
from headrace.testing import Driver

NEWS, ALERTS = "id int, title string, body string", "name string, owner string, query string"


def app_of(text="concat_ws(' ', title, body)", **options):
    app = hr.App("search", shards=2)
    news = app.stream("news", NEWS)
    alerts = app.table("alerts", ALERTS, key="name", **options)
    news.search(alerts, text=text).named("mentions").to_topic("out")
    return app


def alert(driver, name, query, owner="ann"):
    driver.send("alerts", {"name": name, "owner": owner, "query": query})


def item(driver, nr, title, body=None):
    driver.send("news", {"id": nr, "title": title, "body": body})


def met(driver):
    return sorted((row["id"], row["name"], row["owner"]) for row in driver.read("out"))


@pytest.mark.on_spark
def test_documents_come_out_with_the_queries_that_are_there_when_they_arrive(drive):
    """On both carriers: added, changed, deleted, refused; each change counts for the documents after it."""
    driver = drive(app_of())
    item(driver, 0, "Hot dog")
    alert(driver, "dogs", "dog OR dogs")
    alert(driver, "hot", '"hot dog" -cold')
    alert(driver, "bad", "dog (")
    item(driver, 1, "HOT", "dog!")
    item(driver, 2, "A cold", "hot dog")
    driver.step()
    assert met(driver) == [(1, "dogs", "ann"), (1, "hot", "ann"), (2, "dogs", "ann")]
    item(driver, 3, "dog")
    alert(driver, "dogs", "d*", owner="bob")
    item(driver, 4, "dog")
    alert(driver, "bad", "dog")
    driver.delete("alerts", name="dogs")
    item(driver, 5, "dog")
    driver.step()
    assert met(driver) == [(3, "dogs", "ann"), (4, "dogs", "bob"), (5, "bad", "ann")]
    driver.step()
    assert met(driver) == []


def test_a_query_that_cannot_be_read_is_a_dead_letter_with_the_place():
    with Driver(app_of()) as driver:
        alert(driver, "a", "dog")
        driver.step()
        alert(driver, "a", 'dog "cat')
        item(driver, 1, "dog cat")
        driver.step()
        assert met(driver) == [], "the query that was there is gone"
        (letter,) = driver.read("alerts.dead")
        assert letter["reason"].endswith("[INVALID_SEARCH] a quotation is not closed, at character 5")
        assert '"name": "a"' in letter["record"]
        assert driver.status()["dead"]["mentions"]["rows"] == 1
        alert(driver, "a", "cat")
        item(driver, 2, "dog cat")
        driver.step()
        assert met(driver) == [(2, "a", "ann")]


def test_a_query_that_cannot_be_read_stops_the_app_where_its_source_says_so():
    with Driver(app_of(on_error="fail")) as driver:
        alert(driver, "a", "dog:cat")
        with pytest.raises(StepFailed, match="a query has no fields"):
            driver.step()


def test_null_meets_nothing_on_either_side():
    with Driver(app_of(text="title || body")) as driver:
        alert(driver, "a", None)
        alert(driver, "b", "dog")
        item(driver, 1, "dog")
        item(driver, 2, "dog", " ")
        item(driver, 3, "", "")
        driver.run()
        assert met(driver) == [(2, "b", "ann")]
        alert(driver, "b", None)
        alert(driver, "a", "dog")
        item(driver, 4, "dog", " ")
        driver.run()
        assert met(driver) == [(4, "a", "ann")]


def test_many_changes_of_a_query_in_one_epoch():
    """Each version is met until the next."""
    with Driver(app_of(), shards=2) as driver:
        for nr in range(30):
            alert(driver, "a", ["dog", None, "cat", '"'][nr % 4], owner=str(nr))
            item(driver, nr, "dog")
        driver.step()
        assert met(driver) == sorted((nr, "a", str(nr)) for nr in range(0, 30, 4))


def test_an_index_keeps_nothing_of_queries_that_are_gone():
    with Driver(app_of(), shards=1) as driver:
        for nr in range(50):
            alert(driver, f"a{nr}", f"word{nr} OR dog*")
        driver.step()
        for nr in range(50):
            driver.delete("alerts", name=f"a{nr}")
        assert driver.state("mentions")["rows"] == 150
        driver.step()
        assert driver.state("mentions")["rows"] == 0


def test_the_example_prints_what_its_page_says(capsys):
    root = Path(hr.__file__).parents[2]
    runpy.run_path(str(root / "examples" / "mentions.py"), run_name="__main__")
    page = (root / "docs" / "search.md").read_text(encoding="utf-8")
    assert f"$ python examples/mentions.py\n{capsys.readouterr().out}```" in page


# ---- any table, any columns ----


def test_columns_of_both_sides_and_a_time_of_its_own():
    app = hr.App("columns")
    posts = app.stream("posts", "id int, owner string, at timestamp", event_time="at")
    rules = app.table("rules", "id int, owner string, words string, since timestamp", key="id", event_time="since")
    found = posts.search(rules.drop("since"), text="owner", query="words", suffix="_of_rule")
    assert found.columns == ["id", "owner", "at", "id_of_rule", "owner_of_rule", "words"]
    assert found.name == "posts_rules_search"
    found.group_by("id_of_rule").window(hr.tumbling("10 s", grace="0 s"), emit="final").agg(n="count(*)").to_topic(
        "out"
    )
    with Driver(app) as driver:
        driver.send("rules", {"id": 7, "owner": "x", "words": "ann", "since": "2026-01-31 10:00:25"})
        for second in ("03", "31", "59"):
            driver.send("posts", {"id": 1, "owner": "Ann", "at": f"2026-01-31 10:00:{second}"})
        driver.run()
        assert [(row["window_start"].second, row["n"]) for row in driver.read("out")] == [(0, 1), (30, 1)]


def test_queries_from_an_aggregate_and_from_the_latest_of_a_stream():
    app = hr.App("tables", shards=2)
    words, names = (app.stream(topic, "who string, word string") for topic in ("words", "names"))
    posts = app.stream("posts", "id int, text string").where("id > 0")
    last = words.latest("who").rename(query="word")
    most = names.group_by("who").agg(query="max(word)").named("most")
    posts.search(last, text="text").named("by_last").to_topic("last")
    posts.search(most, text="text").named("by_most").to_topic("most")
    with Driver(app) as driver:
        driver.send("words", {"who": "a", "word": "dog"}, {"who": "a", "word": "cat"})
        driver.send("names", {"who": "a", "word": "dog"}, {"who": None, "word": "cow"})
        driver.send("posts", {"id": 1, "text": "cat cow"}, {"id": 2, "text": "dog"}, {"id": 0, "text": "dog"})
        driver.run()
        assert [(row["id"], row["who"]) for row in driver.read("last")] == [(1, "a")]
        assert sorted((row["id"], row["who"]) for row in driver.read("most")) == [(1, None), (2, "a")]
        driver.send("words", {"who": "a", "word": "cow"})
        driver.send("names", {"who": None, "word": "horse"})
        driver.send("posts", {"id": 3, "text": "Cow, horse"})
        driver.run()
        assert [(row["id"], row["who"]) for row in driver.read("last")] == [(3, "a")]
        assert [(row["id"], row["who"]) for row in driver.read("most")] == [(3, None)]


def test_what_a_search_cannot_do_is_refused_when_it_is_declared():
    app = hr.App("refused")
    news = app.stream("news", NEWS, private=["body"])
    alerts = app.table("alerts", ALERTS, key="name")
    secret = app.table("secret", ALERTS, key="name", private={"query": "name"})
    other = hr.App("other").table("alerts", ALERTS, key="name")
    with pytest.raises(UnknownColumn, match="quer"):
        news.search(alerts, text="title", query="quer")
    with pytest.raises(UnknownColumn, match="titel"):
        news.search(alerts, text="titel")
    with pytest.raises(WrongColumnType, match="the text that is searched"):
        news.search(alerts, text="id")
    with pytest.raises(WrongColumnType, match="a query"):
        news.search(app.table("n", "query int", key="query"), text="title")
    with pytest.raises(SealedColumn):
        news.search(alerts, text="body")
    with pytest.raises(SealedColumn):
        news.search(secret, text="title")
    with pytest.raises(InvalidPlan, match="have no key"):
        news.search(alerts.select("query"), text="title")
    with pytest.raises(InvalidPlan, match="have no key"):
        news.search(app.stream("queries", "query string"), text="title")
    with pytest.raises(InvalidPlan, match="of this app"):
        news.search(other, text="title")


# ---- what a changed program means ----


def restarted(tmp_path, first, second):
    with Driver(first, storage=tmp_path) as driver:
        alert(driver, "a", "dog")
        item(driver, 1, "dog", "cat")
        driver.run()
    with Driver(second, storage=tmp_path) as driver:
        item(driver, 2, "dog", "cat")
        item(driver, 3, "cat", "dog")
        driver.run()
        return met(driver)


def test_another_text_holds_for_the_documents_that_arrive_from_then_on(tmp_path):
    found = restarted(tmp_path, app_of("title"), app_of("body"))
    assert found == [(1, "a", "ann"), (3, "a", "ann")]


def test_queries_in_another_column_are_refused(tmp_path):
    def app(query):
        made = hr.App("search", shards=2)
        alerts = made.table("alerts", ALERTS, key="name")
        made.stream("news", NEWS).search(alerts, text="title", query=query).named("mentions").to_topic("out")
        return made

    with pytest.raises(PlanChanged, match="mentions"):
        restarted(tmp_path, app("query"), app("owner"))


def test_a_search_that_is_new_knows_the_queries_that_are_there(tmp_path):
    """Of documents it gets those that arrive from then on; queries that cannot be read are dead letters then."""

    def app(*names):
        made = hr.App("search", shards=2)
        news, alerts = made.stream("news", NEWS), made.table("alerts", ALERTS, key="name")
        alerts.to_view("alerts")
        news.to_topic("all")
        for name in names:
            news.search(alerts, text="title").named(name).to_topic(name)
        return made

    with Driver(app(), storage=tmp_path) as driver:
        alert(driver, "a", "dog")
        alert(driver, "b", "dog (")
        item(driver, 1, "dog")
        driver.run()
    with Driver(app("out"), storage=tmp_path) as driver:
        item(driver, 2, "dog")
        driver.run()
        assert met(driver) == [(2, "a", "ann")]
        assert [letter["reason"][-33:] for letter in driver.read("alerts.dead")] == [
            "a word is missing, at character 6"
        ]


# ---- crashes ----


def scenario(step):
    """Return what comes out of epochs that are run by `step`."""
    published = []
    with Driver(app_of()) as driver:
        for number in range(4):
            for nr in range(6):
                alert(driver, f"a{nr}", f"w{(nr + number) % 4} OR x{number}", owner=str(number))
                item(driver, number * 10 + nr, f"w{nr}", f"x{nr}")
            if number == 2:
                driver.delete("alerts", name="a0")
                alert(driver, "a1", "(")
            step(driver, number)
            published += met(driver)
    return published


@pytest.mark.parametrize("point", disturbed.points("after_staging", "after_commit", without=("before_views",)))
def test_a_crash_makes_no_difference(point):
    assert scenario(disturbed.crashing(point, (1, 3))) == scenario(disturbed.quietly)


def test_a_restart_after_every_epoch_makes_no_difference():
    assert scenario(disturbed.restarting) == scenario(disturbed.quietly)
