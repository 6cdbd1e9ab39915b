-- Our benches in Flink SQL. A line "-- name: topics read" starts a query.

-- filter: bid
SELECT COUNT(*) AS n FROM bid WHERE MOD(auction, 123) = 0

-- windowed: bid
SELECT auction, COUNT(*) AS n, SUM(price) AS total
FROM TUMBLE(TABLE bid, DESCRIPTOR(`dateTime`), INTERVAL '10' SECOND)
GROUP BY auction, window_start, window_end
