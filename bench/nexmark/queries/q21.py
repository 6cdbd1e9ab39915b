"""Add channel id: by the channel's name, or from the address."""

from headrace import Stream

READS = ("bid",)

ID = "regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)"
CHANNEL = f"""case lower(channel) when 'apple' then '0' when 'google' then '1'
                            when 'facebook' then '2' when 'baidu' then '3' else {ID} end"""
KNOWN = f"{ID} <> '' or lower(channel) in ('apple', 'google', 'facebook', 'baidu')"


def verbs(bid: Stream) -> Stream:
    """Bids whose channel has a number, with it."""
    return bid.where(KNOWN).select("auction", "bidder", "price", "channel", channel_id=CHANNEL)


SQL = f"select auction, bidder, price, channel, {CHANNEL} as channel_id from bid where {KNOWN}"
STREAMING = SQL
