-- The columns of many rows of rollup or rollup_hour, on PostgreSQL.
:at::bigint[], :endpoint_id::bigint[], :tenant::text[], :node::integer[],
:delivered::bigint[], :failed::bigint[], :sender_errors::bigint[], :dropped::bigint[],
:b0::bigint[], :b1::bigint[], :b2::bigint[], :b3::bigint[], :b4::bigint[], :b5::bigint[], :b6::bigint[],
:b7::bigint[], :b8::bigint[], :b9::bigint[], :b10::bigint[], :b11::bigint[]
