-- The causes of a tenant that ended last, whatever the other tenants have.
CREATE INDEX cause_closed_tenant ON cause (tenant, closed_at) WHERE closed_at IS NOT NULL;
