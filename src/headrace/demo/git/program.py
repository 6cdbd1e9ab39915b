"""The history of a git repository, as a stream of commits and as a table of files.

What was worked on, week by week, although commits come late; and what is there now, and whose it is.

`headrace demo git` feeds the topic and runs this program; `headrace explain` and `headrace status` take it as FILE.
"""

import headrace as hr

# Everything the app owns is in this folder: its topics, its state, its views.
app = hr.App("git_history", storage=".headrace/demo-git")

# A topic of commits, in the order in which they entered the main line. Each happened when its author wrote it, and
# that order is another: who rebases, or waits for a review, delivers old work late. The stream tells us so: it says
# that a commit may be a day behind the newest one. Whatever is later than that, the watermark leaves behind.
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

# emit="changes", the default: a week is there from its first commit on, and each later one corrects it.
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

# emit="final": a week comes out once, when it has closed, and is never taken back.
final = changes.group_by("folder").window(week, emit="final").agg(changes="count(*)").named("weekly_final")
final.to_view("weekly_final")

# Late for a closed week does not mean lost: these rows are a stream too.
weekly.late.to_view("late")
weekly.late.to_topic("late")

# Without a window nothing is ever late: totals over all time.
changes.group_by("folder").agg(changes="count(*)").named("folders").to_view("folders")
commits.group_by().agg(
    commits="count(*)", people="count(distinct author)", first="min(written)", last="max(written)"
).named("totals").to_view("totals")

# The same history as a table: a change of a file replaces what was there, a deletion (a record without a value) takes
# it away. What is made of a table follows: a file that goes from one owner to another leaves the count of the first.
files = app.table("files", "path string, blob string, owner string, changed timestamp", key="path", partitions=1)
files.to_view("files")

# The owner of a file is who changed it last.
by_folder = files.with_columns(folder="CASE WHEN instr(path, '/') > 0 THEN split_part(path, '/', 1) ELSE '.' END")
by_folder.group_by("folder").agg(files="count(*)", owners="count(distinct owner)", last="max(changed)").named(
    "tree"
).to_view("tree")

# A table of a table: the ten who own most. Only who enters, leaves or moves comes out.
owners = files.group_by("owner").agg(files="count(*)", last="max(changed)").named("owners")
owners.group_by().top(10, "files DESC, owner ASC", rank="place").named("top_owners").to_view("top_owners")

if __name__ == "__main__":
    app.run()
