SELECT day, relay, minute,
    sum(CASE WHEN kind IN ('accepted', 'rejected') AND part = 0 THEN n ELSE 0 END) AS publishes,
    count(*) FILTER (kind = 'accepted' AND endpoint <> '') AS stored,
    count(*) FILTER (kind = 'accepted' AND endpoint = '') AS unclaimed,
    sum(if(kind = 'rejected', n, 0)) AS rejected,
    count(*) FILTER (kind = 'acked') AS acked,
    count(*) FILTER (kind = 'failed') AS failed,
    sum(if(kind = 'accepted' AND endpoint <> '', size, 0)) AS bytes
FROM line WHERE kind IN ('accepted', 'rejected', 'acked', 'failed')
GROUP BY ALL
