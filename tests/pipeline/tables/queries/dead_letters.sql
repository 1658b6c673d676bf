SELECT day, relay, endpoint, split_part(died_of, ': ', 1) AS reason, count(*) AS letters,
    count(DISTINCT sender) AS senders, count(*) FILTER (redrives > 0) AS redriven,
    count(*) FILTER (state = 'purged') AS purged, count(*) FILTER (state = 'dead') AS waiting,
    min(died_at) AS first_at, max(died_at) AS last_at
FROM messages WHERE died_at IS NOT NULL GROUP BY ALL
