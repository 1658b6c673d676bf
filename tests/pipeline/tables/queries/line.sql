-- The journal's events, with omitted defaults filled in. A line with ids stands for several.
CREATE VIEW line AS
SELECT
    $relay AS relay, kind, seq - coalesce(len(ids), 1) + nth AS seq, at_us, make_timestamp(at_us) AS moment,
    make_timestamp(at_us)::DATE AS day,
    coalesce(ids[nth], id) AS id, sender, subject, coalesce(endpoint, '') AS endpoint,
    coalesce(part, 0) AS part, coalesce(parts, 1) AS parts, reply_to, parent,
    coalesce(due_us, 0) AS due_us, coalesce(thread, ids[nth], id) AS thread,
    coalesce(answer, false) AS answer, coalesce(extended, false) AS extended,
    budget.call_budget_remaining AS calls,
    coalesce(size, 0) AS size, budget.hop_count AS hop_count, coalesce(tier, 1) AS tier,
    coalesce(depth, 0) AS depth, coalesce(depth_max, 0) AS depth_max,
    CASE WHEN kind = 'expired' THEN coalesce(reason, 'time to live is over') ELSE reason END
        AS reason,
    coalesce(detail, '') AS detail, coalesce(retry_after_ms, 0) AS retry_after_ms,
    coalesce("count", 1) AS n, coalesce(since_us, 0) AS since_us,
    coalesce(kept, true) AS kept,
    coalesce(was, 'pending') AS was, before, after, occasion, action, cause,
    -- A counted line belongs to the minute in which the counting began, if that is the same day.
    date_trunc('minute', CASE
        WHEN kind = 'rejected' AND since_us > 0
            AND make_timestamp(since_us)::DATE = make_timestamp(at_us)::DATE
        THEN make_timestamp(since_us) ELSE make_timestamp(at_us) END) AS minute
FROM read_json($files, format = 'newline_delimited', columns = {
    kind: 'VARCHAR', seq: 'BIGINT', at_us: 'BIGINT', id: 'VARCHAR', ids: 'VARCHAR[]', sender: 'VARCHAR',
    subject: 'VARCHAR', endpoint: 'VARCHAR', part: 'INTEGER', parts: 'INTEGER',
    reply_to: 'VARCHAR', parent: 'VARCHAR', thread: 'VARCHAR', answer: 'BOOLEAN',
    extended: 'BOOLEAN', size: 'BIGINT', due_us: 'BIGINT',
    budget: 'STRUCT(hop_count INTEGER, call_budget_remaining BIGINT)',
    tier: 'INTEGER', depth: 'BIGINT', depth_max: 'BIGINT', reason: 'VARCHAR', detail: 'VARCHAR',
    retry_after_ms: 'BIGINT', "count": 'BIGINT', since_us: 'BIGINT', kept: 'BOOLEAN',
    was: 'VARCHAR',
    before: 'VARCHAR', after: 'VARCHAR', occasion: 'VARCHAR', action: 'VARCHAR', cause: 'VARCHAR'}), unnest(generate_series(1, coalesce(len(ids), 1))) AS each (nth)
WHERE kind <> 'commit';

CREATE VIEW arrival AS SELECT * FROM line WHERE kind IN ('accepted', 'rejected');
