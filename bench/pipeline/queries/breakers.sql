-- A start of the relay ends every state: breakers begin closed.
WITH changes AS (
    SELECT *, lead(at_us) OVER (PARTITION BY relay, endpoint ORDER BY seq) AS next_us,
        min(if(kind = 'settings', at_us, NULL)) OVER (PARTITION BY relay ORDER BY seq DESC)
            AS start_us
    FROM line WHERE kind = 'breaker' OR (kind = 'settings' AND cause = 'start')
)
SELECT day, relay, seq, moment AS at, endpoint, before, after, occasion,
    (least(next_us, start_us) - at_us) / 1000.0 AS lasted_ms
FROM changes WHERE kind = 'breaker'
