"""The history of a git repository, as a stream of commits and as a table of files.

What was worked on, week by week, although commits arrive late; which files exist now, and who owns them.

`headrace demo git` feeds the topic and runs this program; `headrace explain` and `headrace status` take it as FILE.
"""

import headrace as hr

# Everything the app owns is in this folder: its topics, its state, its views.
app = hr.App("git_history", storage=".headrace/demo-git")

# A topic of commits, in the order in which they entered the main line. Event time is when the author wrote a commit:
# another order, since a rebase or a long review delivers old work late. The stream declares that a commit may be a day
# behind the newest one. A commit that is further behind is behind the watermark.
commits = app.stream(
    "commits",
    "commit string, author string, paths array<string>, written timestamp, committed timestamp",
    event_time="written",
    out_of_order="1 day",
    partitions=1,  # one history, one order
)

# One row for each path that a commit changed, with its top-level folder.
changes = (
    commits.with_columns(waited="committed > written + INTERVAL 7 DAYS")
    .explode("paths", "path")
    .with_columns(folder="CASE WHEN instr(path, '/') > 0 THEN split_part(path, '/', 1) ELSE '.' END")
)

# Weeks from Monday to Sunday. A week can be corrected until the watermark is 14 days past its end; then it closes.
week = hr.tumbling("7 days", offset="4 days", grace="14 days")  # 1970 began on a Thursday

# emit="changes", the default: a week is in the view from its first commit on, and each later commit corrects it.
weekly = (
    changes.group_by("folder")
    .window(week)
    .agg(
        changes="count(*)",
        commits="count(distinct commit)",
        people="count(distinct author)",
        waited="count_if(waited)",
    )
    .named("weekly")
)
weekly.to_view("weekly")
weekly.changes().to_topic("weekly_changes")  # every correction: what the row was, what it became

# emit="final": a week is emitted once, when it has closed, and is never withdrawn.
final = changes.group_by("folder").window(week, emit="final").agg(changes="count(*)").named("weekly_final")
final.to_view("weekly_final")

# Rows that are late for a closed week are not lost: they are a stream too.
weekly.late.to_view("late")
weekly.late.to_topic("late")

# Without a window nothing is ever late: totals over all time.
changes.group_by("folder").agg(changes="count(*)").named("folders").to_view("folders")
commits.group_by().agg(
    commits="count(*)", people="count(distinct author)", first="min(written)", last="max(written)"
).named("totals").to_view("totals")

# The same history as a table: a change of a file replaces its row, a deletion (a record without a value) removes it.
# Results over a table follow: a file that changes its owner leaves the count of the old owner.
files = app.table("files", "path string, blob string, owner string, changed timestamp", key="path", partitions=1)
files.to_view("files")

# The owner of a file is the last person who changed it.
by_folder = files.with_columns(folder="CASE WHEN instr(path, '/') > 0 THEN split_part(path, '/', 1) ELSE '.' END")
by_folder.group_by("folder").agg(files="count(*)", owners="count(distinct owner)", last="max(changed)").named(
    "tree"
).to_view("tree")

# A table over a table: the ten who own most. Only owners who enter, leave or change place are emitted.
owners = files.group_by("owner").agg(files="count(*)", last="max(changed)").named("owners")
owners.group_by().top(10, "files DESC, owner ASC", rank="place").named("top_owners").to_view("top_owners")

if __name__ == "__main__":
    app.run()
