WITH busy AS (
    SELECT day, sender, max(publishes) AS busiest_minute FROM (
        SELECT day, sender, minute, sum(if(part = 0, n, 0)) AS publishes
        FROM arrival GROUP BY ALL) GROUP BY ALL
), sums AS (
    SELECT day, relay, sender,
        sum(if(part = 0, n, 0)) AS publishes,
        count(*) FILTER (kind = 'accepted' AND endpoint <> '') AS stored,
        sum(if(kind = 'rejected', n, 0)) AS rejected,
        sum(if(reason = 'rate_limited', n, 0)) AS rate_limited,
        sum(if(reason = 'fanout_exceeded', n, 0)) AS fanout_exceeded,
        sum(if(reason = 'quota_exceeded', n, 0)) AS quota_exceeded,
        sum(if(reason = 'backpressure', n, 0)) AS backpressure,
        sum(if(reason = 'circuit_open', n, 0)) AS circuit_open,
        sum(if(reason = 'budget_exceeded', n, 0)) AS budget_exceeded,
        sum(if(reason = 'access_denied', n, 0)) AS access_denied,
        sum(if(kind = 'accepted' AND endpoint <> '', size, 0)) AS bytes,
        count(DISTINCT endpoint) FILTER (endpoint <> '') AS recipients,
        sum(if(endpoint <> '' AND tier = 1, n, 0)) AS tier1,
        sum(if(endpoint <> '' AND tier = 2, n, 0)) AS tier2,
        sum(if(endpoint <> '' AND tier = 3, n, 0)) AS tier3
    FROM arrival GROUP BY ALL
)
SELECT sums.* EXCLUDE (tier1, tier2, tier3),
    (SELECT coalesce(sum(back.n), 0) FROM arrival AS back
        WHERE back.day = sums.day AND back.endpoint = sums.sender
        AND back.sender IN (SELECT there.endpoint FROM arrival AS there
            WHERE there.day = sums.day AND there.sender = sums.sender)) AS answers,
    busiest_minute, tier1, tier2, tier3
FROM sums JOIN busy USING (day, sender)
