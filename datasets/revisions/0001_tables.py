"""The tables of the first release."""

TABLES = {  # key, then fields: a name, the type unless it is string, * if indexed
    "sys_fences": (
        "scope shard",
        "scope shard:int n:int",
    ),
    "sys_leases": (
        "lease",
        "lease owner token:long beat:long ttl:int info",
    ),
    "sys_permits": (
        "pool slot",
        "pool slot:int holder token:long beat:long ttl:int",
    ),
    "sys_namespaces": (
        "namespace",
        "namespace description config generation:long created:timestamp updated:timestamp",
    ),
    "sys_applications": (
        "namespace application",
        "namespace application latest edits:long updated:timestamp",
    ),
    "sys_application_versions": (
        "namespace application version",
        "namespace application version spec artifact author summary source ordinal:long created:timestamp",
    ),
    "sys_application_history": (
        "namespace application ordinal",
        "namespace application ordinal:long version",
    ),
    "sys_application_state": (
        "namespace application state_key",
        "namespace application state_key value:bytes",
    ),
    "sys_artifacts": (
        "namespace artifact version_order",
        "namespace artifact version_order version detail parents created:timestamp",
    ),
    "sys_plugins": (
        "parent_namespace parent type plugin namespace artifact version_order",
        "parent_namespace parent type plugin namespace artifact version_order detail low "
        "low_inclusive:boolean high high_inclusive:boolean",
    ),
    "sys_application_classes": (
        "namespace class_name artifact_namespace artifact version_order",
        "namespace class_name artifact_namespace artifact version_order detail",
    ),
    "sys_runs": (
        "namespace application program_type program run",
        "namespace application program_type program run version status cluster active:boolean* "
        "cluster_open:boolean* ended_on:date* profile* parent_run* source:long started:timestamp "
        "running:timestamp suspended:timestamp resumed:timestamp stopping:timestamp terminate_by:timestamp "
        "stopped:timestamp nodes:int principal peer artifact arguments system failure",
    ),
    "sys_run_counts": (
        "namespace application program_type program version shard",
        "namespace application program_type program version shard:int runs:long",
    ),
    "sys_heartbeats": (
        "namespace minute application program_type program run",
        "namespace minute:timestamp application program_type program run record",
    ),
    "sys_provisioning_tasks": (
        "namespace application program_type program run kind",
        "namespace application program_type program run kind state task attempts:int updated:timestamp",
    ),
    "sys_remote_runtimes": (
        "namespace application program_type program run",
        "namespace application program_type program run options added:timestamp",
    ),
    "sys_workflow_tokens": (
        "namespace application program_type program run",
        "namespace application program_type program run token",
    ),
    "sys_workflow_nodes": (
        "namespace application program_type program run node",
        "namespace application program_type program run node status child_run failure source:long updated:timestamp",
    ),
    "sys_workflow_statistics": (
        "namespace application version program started run",
        "namespace application version program started:timestamp run seconds:long programs",
    ),
    "sys_preferences": (
        "namespace application program_type program",
        "namespace application program_type program properties seq:long",
    ),
    "sys_configs": (
        "namespace kind name",
        "namespace kind name properties updated:timestamp",
    ),
    "sys_schedules": (
        "namespace application schedule",
        "namespace application schedule definition status generation:long updated:timestamp",
    ),
    "sys_schedule_triggers": (
        "namespace application schedule sequence",
        "namespace application schedule sequence:int trigger*",
    ),
    "sys_schedule_jobs": (
        "partition schedule generation part",
        "partition:int schedule generation:int part state notifications schedule_generation:long "
        "created:timestamp at:timestamp",
    ),
    "sys_profiles": (
        "namespace profile",
        "namespace profile provisioner status created:timestamp",
    ),
    "sys_profile_assignments": (
        "namespace profile entity",
        "namespace profile entity created:timestamp",
    ),
    "sys_secrets": (
        "namespace secret",
        "namespace secret version:long description properties created:timestamp updated:timestamp",
    ),
    "sys_secret_values": (
        "namespace secret version",
        "namespace secret version:long key_id* wrapped:bytes nonce:bytes data:bytes",
    ),
    "sys_owners": (
        "entity",
        "entity principal key_id* wrapped:bytes nonce:bytes keytab:bytes created:timestamp",
    ),
    "sys_credential_profiles": (
        "namespace profile",
        "namespace profile provisioner description key_id* wrapped:bytes nonce:bytes data:bytes",
    ),
    "sys_credential_identities": (
        "namespace identity",
        "namespace identity profile* key_id* wrapped:bytes nonce:bytes data:bytes",
    ),
    "sys_lineage_by_dataset": (
        "dataset_namespace dataset namespace application program_type program run access",
        "namespace application program_type program run dataset_namespace dataset access at:timestamp day:date*",
    ),
    "sys_lineage_by_program": (
        "namespace application program_type program run dataset_namespace dataset access",
        "namespace application program_type program run dataset_namespace dataset access at:timestamp day:date*",
    ),
    "sys_usage_by_program": (
        "namespace application program_type program dataset_namespace dataset",
        "namespace application program_type program dataset_namespace dataset",
    ),
    "sys_usage_by_dataset": (
        "dataset_namespace dataset namespace application program_type program",
        "namespace application program_type program dataset_namespace dataset",
    ),
    "sys_lineage_endpoints": (
        "direction endpoint_namespace endpoint run",
        "direction endpoint_namespace endpoint run program checksum* properties day:date*",
    ),
    "sys_lineage_operations": (
        "checksum",
        "checksum operations",
    ),
    "sys_lineage_destinations": (
        "checksum endpoint_namespace endpoint",
        "checksum endpoint_namespace endpoint fields",
    ),
    "sys_lineage_summaries": (
        "checksum direction endpoint_namespace endpoint field",
        "checksum direction endpoint_namespace endpoint field fields",
    ),
    "sys_metadata": (
        "entity scope",
        "entity scope properties tags generation:long",
    ),
    "sys_metadata_terms": (
        "term entity scope",
        "term entity scope kind",
    ),
    "sys_dataset_instances": (
        "namespace dataset",
        "namespace dataset kind* definition",
    ),
    "sys_dataset_kinds": (
        "namespace kind",
        "namespace kind module* definition",
    ),
    "sys_dataset_modules": (
        "namespace module",
        "namespace module definition",
    ),
    "sys_peers": (
        "peer",
        "peer uri state requested:timestamp last_seen:timestamp metadata",
    ),
    "sys_capabilities": (
        "capability",
        "capability status config updated:timestamp",
    ),
    "sys_capability_operations": (
        "capability",
        "capability action config",
    ),
    "sys_operations": (
        "namespace operation",
        "namespace operation kind* status* started:timestamp* updated:timestamp details error",
    ),
    "sys_repositories": (
        "namespace",
        "namespace config updated:timestamp",
    ),
    "sys_sync_states": (
        "namespace side kind name",
        "namespace side kind name hash commit modified:timestamp* synced:boolean*",
    ),
    "sys_log_files": (
        "context event created",
        "context event:timestamp created:timestamp file created_on:date*",
    ),
    "sys_log_checkpoints": (
        "prefix partition",
        "prefix partition:int checkpoint updated:timestamp",
    ),
    "sys_external_positions": (
        "topic subscriber",
        "topic subscriber position updated:timestamp",
    ),
}


def up(op):
    for table, (key, fields) in TABLES.items():
        names = [one.rstrip("*").partition(":") for one in fields.split()]
        made = [getattr(op, kind or "string")(name) for name, _, kind in names]
        indexes = [one.partition(":")[0].rstrip("*") for one in fields.split() if one.endswith("*")]
        op.create_table(op.table(table, made, key.split(), indexes))
