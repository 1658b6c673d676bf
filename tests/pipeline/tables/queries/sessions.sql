WITH ended AS (
    SELECT *, (SELECT arg_min(if(later.action = 'disconnected', later.at_us, 0), later.seq)
        FROM line AS later
        WHERE later.kind = 'session' AND later.subject = line.subject AND later.seq > line.seq)
        AS end_us
    FROM line WHERE kind = 'session' AND action = 'connected'
)
SELECT day, relay, subject, moment AS connected_at,
    CASE WHEN end_us > 0 THEN make_timestamp(end_us) END AS disconnected_at,
    CASE WHEN end_us > 0 THEN (end_us - at_us) / 1000.0 END AS lasted_ms
FROM ended
