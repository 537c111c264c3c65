-- The outbox of Homing: what homing_publish() puts into this table is published by the relay
-- once the transaction around it has committed. Running this again keeps the rows, and upgrades an
-- outbox of an older version.

CREATE TABLE IF NOT EXISTS homing_outbox (
    number     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         text NOT NULL,            -- of the event
    tenant     text NOT NULL,
    type       text NOT NULL,
    data       text NOT NULL,            -- JSON, byte for byte
    time       text,                     -- after RFC 3339; NULL: when Homing accepts it
    key        text,                     -- the object that the event is about; NULL: none
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    refused_at timestamptz,              -- Homing refused it for good …
    reason     text                      -- … and said why
) WITH (autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX IF NOT EXISTS homing_outbox_waiting ON homing_outbox (number) WHERE refused_at IS NULL;
CREATE INDEX IF NOT EXISTS homing_outbox_refused ON homing_outbox (number) WHERE refused_at IS NOT NULL;

-- An outbox from before keys has no such column, and its functions would make calls ambiguous. Only
-- those of this schema go: the search path may lead to the outbox of another program.
ALTER TABLE homing_outbox ADD COLUMN IF NOT EXISTS key text;
DO $homing$
BEGIN
    EXECUTE format(
        'DROP FUNCTION IF EXISTS %1$I.homing_publish(text, text, text, text, timestamptz),'
        ' %1$I.homing_publish(text, json, text, text, timestamptz)', current_schema());
END
$homing$;

CREATE OR REPLACE FUNCTION homing_publish(
    type text, data text, id text DEFAULT NULL, tenant text DEFAULT NULL,
    at timestamptz DEFAULT NULL, key text DEFAULT NULL
) RETURNS text LANGUAGE plpgsql VOLATILE SET search_path FROM CURRENT AS $homing$
DECLARE
    moment timestamptz := homing_publish.at;
    made text := homing_publish.id;
BEGIN
    IF coalesce(length(type) NOT BETWEEN 1 AND 256 OR type ~ '[^A-Za-z0-9._-]', true) THEN
        RAISE EXCEPTION 'homing_publish: type must be 1 to 256 of the characters A-Z a-z 0-9 . _ -'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF starts_with(type, 'homing.') THEN
        RAISE EXCEPTION 'homing_publish: type must not begin with homing., which is for Homing''s own events'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF data IS NULL THEN
        RAISE EXCEPTION 'homing_publish: data must be JSON; for no data give ''null'''
            USING ERRCODE = 'null_value_not_allowed';
    END IF;
    PERFORM data::json;
    IF octet_length(convert_to(data, 'UTF8')) > 1048576 THEN
        RAISE EXCEPTION 'homing_publish: data must be at most 1 MiB'
            USING ERRCODE = 'program_limit_exceeded';
    END IF;
    IF made IS NULL THEN  -- In order of time: the first 12 digits are milliseconds.
        made := lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
            || substr(replace(gen_random_uuid()::text, '-', ''), 13);
        moment := coalesce(moment, clock_timestamp());
    ELSIF length(made) NOT BETWEEN 1 AND 128 OR made ~ '[^!-~]' OR strpos(made, '.') > 0 THEN
        RAISE EXCEPTION 'homing_publish: id must be 1 to 128 visible ASCII characters without "."'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF length(tenant) NOT BETWEEN 1 AND 64 OR tenant ~ '[^A-Za-z0-9_-]' THEN
        RAISE EXCEPTION 'homing_publish: tenant must be 1 to 64 of the characters A-Z a-z 0-9 _ -'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF NOT isfinite(moment)
       OR moment NOT BETWEEN '0001-01-01 00:00:00+00' AND '9999-12-31 23:59:59.999999+00' THEN
        RAISE EXCEPTION 'homing_publish: at must lie in the years 1 to 9999'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF octet_length(convert_to(key, 'UTF8')) NOT BETWEEN 1 AND 128
       OR key ~ '[\u0001-\u001F\u007F]' OR key ~ '^ | $' THEN
        RAISE EXCEPTION 'homing_publish: key must be 1 to 128 bytes of printable text (UTF-8), without a space at its beginning or end'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO homing_outbox (id, tenant, type, data, time, key)
    VALUES (
        made, coalesce(homing_publish.tenant, 'default'), homing_publish.type, homing_publish.data,
        to_char(moment AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), homing_publish.key
    );
    PERFORM pg_notify('homing_outbox', '');
    RETURN made;
END
$homing$;

-- For what SQL itself makes: homing_publish('invoice.paid', json_build_object('id', 7)).
CREATE OR REPLACE FUNCTION homing_publish(
    type text, data json, id text DEFAULT NULL, tenant text DEFAULT NULL,
    at timestamptz DEFAULT NULL, key text DEFAULT NULL
) RETURNS text LANGUAGE sql VOLATILE SET search_path FROM CURRENT AS $homing$
    SELECT homing_publish($1, $2::text, $3, $4, $5, $6)
$homing$;
