-- Aggregated by minute first, to find the busiest; contacts come from `pairs`.
WITH minutes AS (
    SELECT day, relay, sender, minute,
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
        sum(if(endpoint <> '' AND tier = 1, n, 0)) AS tier1,
        sum(if(endpoint <> '' AND tier = 2, n, 0)) AS tier2,
        sum(if(endpoint <> '' AND tier = 3, n, 0)) AS tier3
    FROM arrival GROUP BY ALL
), sums AS (
    SELECT day, relay, sender, max(publishes) AS busiest_minute,
        sum(COLUMNS(* EXCLUDE (day, relay, sender, minute)))
    FROM minutes GROUP BY ALL
), partners AS (
    SELECT there.day, there.relay, there.sender, count(*) AS recipients,
        coalesce(sum(back.arrivals), 0) AS answers
    FROM pairs AS there LEFT JOIN pairs AS back
        ON back.day = there.day AND back.relay = there.relay
        AND back.sender = there.endpoint AND back.endpoint = there.sender
    GROUP BY ALL
)
SELECT sums.*, coalesce(recipients, 0) AS recipients, coalesce(answers, 0) AS answers
FROM sums LEFT JOIN partners USING (day, relay, sender)
