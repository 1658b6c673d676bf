WITH ended AS (
    SELECT *, CASE WHEN lead(action) OVER following = 'disconnected'
        THEN lead(at_us) OVER following END AS end_us
    FROM line WHERE kind = 'session'
    WINDOW following AS (PARTITION BY relay, subject ORDER BY seq)
)
SELECT day, relay, subject, moment AS connected_at, make_timestamp(end_us) AS disconnected_at,
    (end_us - at_us) / 1000.0 AS lasted_ms
FROM ended WHERE action = 'connected'
