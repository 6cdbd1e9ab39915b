"""The social timeline: whose tweets everyone sees, right after every tweet, deletion, follow and unfollow.

Two tables joined (Designing Data-Intensive Applications, chapter 11): the timeline is what they make, so a tweet enters
the timeline of each follower, a deleted one leaves all of them, a follow brings the author's tweets and an unfollow
takes them away. The view holds the 100 newest of each follower.
"""

import headrace as hr

app = hr.App("timeline", storage=".headrace/timeline")

tweets = app.table("tweets", "id bigint, author string, text string, at timestamp", key="id", event_time="at")
follows = app.table("follows", "follower string, followee string", key=("follower", "followee"))

timeline = tweets.join(follows, on={"author": "followee"}).named("timeline")
timeline.group_by("follower").top(100, "at desc, id desc").to_view("timelines")

if __name__ == "__main__":
    app.run()
