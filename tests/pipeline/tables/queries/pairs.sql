SELECT day, relay, sender, endpoint, sum(n) AS arrivals,
    count(*) FILTER (kind = 'accepted') AS stored,
    sum(if(kind = 'rejected', n, 0)) AS rejected,
    sum(if(kind = 'accepted', size, 0)) AS bytes,
    min(moment) AS first_at, max(moment) AS last_at,
    max(at_us // 1000) FILTER (kind = 'accepted'
        OR reason NOT IN ('rate_limited', 'access_denied', 'storage_full', 'mailbox_unavailable')) AS last_seen_ms,
    arg_max(tier, seq) AS last_tier
FROM arrival WHERE endpoint <> ''
GROUP BY ALL
