SELECT day, relay, seq, moment AS at, endpoint, before, after, occasion,
    ((SELECT min(later.at_us) FROM line AS later
        WHERE later.seq > line.seq AND ((later.kind = 'breaker' AND later.endpoint = line.endpoint)
            OR (later.kind = 'settings' AND later.cause = 'start')))
        - at_us) / 1000.0 AS lasted_ms
FROM line WHERE kind = 'breaker'
