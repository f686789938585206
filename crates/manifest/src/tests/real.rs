//! Files in the style of those that people have: every key that is not acted on is named.

use crate::{Input, read};

/// Checks which keys of a file are mistakes, in their order.
fn check_keys(text: &str, expected: &[&str]) {
    let mistakes = read(&Input::of(text)).expect_err("refused");
    let keys: Vec<&str> = mistakes.iter().map(|mistake| mistake.key.as_str()).collect();
    assert_eq!(keys, expected, "{mistakes:#?}");
}

#[test]
fn a_web_application_with_a_database() {
    check_keys(
        "name: blog
services:
  proxy:
    build: {context: proxy, target: final}
    ports: ['80:80']
    depends_on: [app]
  app:
    image: blog:${TAG:-latest}
    restart: unless-stopped
    command: [serve, --all]
    environment:
      - DB_HOST=db
    networks: [front, back]
  db:
    image: mariadb
    volumes: [db-data:/var/lib/mysql, ./init.sql:/docker-entrypoint-initdb.d/init.sql:ro]
    secrets: [db-password]
    healthcheck: {test: [CMD, mariadb-admin, ping], interval: 5s}
    expose: [3306]
secrets:
  db-password: {file: db/password.txt}
networks: {front: , back: }
volumes: {db-data: }
",
        &[
            "services.proxy.build",
            "services.proxy.ports",
            "services.proxy.depends_on",
            "services.app.image",
            "services.app.restart",
            "services.app.command",
            "services.app.networks",
            "services.db.image",
            "services.db.volumes./docker-entrypoint-initdb.d/init.sql",
            "services.db.secrets",
            "services.db.healthcheck",
            "services.db.expose",
            "secrets",
            "networks",
        ],
    );
}

#[test]
fn a_stack_of_swarm() {
    check_keys(
        "version: '3.8'
name: stack
services:
  api:
    image: registry.example.org/api:7
    logging: {driver: json-file}
    env_file: .env
    deploy:
      mode: replicated
      replicas: 2
      endpoint_mode: vip
      labels: ['traefik.enable=true']
      placement:
        constraints: [engine.labels.os == linux, node.labels.disk == ssd]
      resources: {limits: {cpus: '1', memory: 512M}, reservations: {memory: 20M}}
      restart_policy: {condition: on-failure, delay: 10s}
      update_config: {parallelism: 1, order: start-first}
      rollback_config: {parallelism: 1}
    configs: [{source: api-config, target: /etc/api.yaml}]
configs:
  api-config: {external: true}
",
        &[
            "services.api.image",
            "services.api.logging",
            "services.api.env_file",
            "services.api.deploy.endpoint_mode",
            "services.api.deploy.labels",
            "services.api.deploy.placement.constraints[0]",
            "services.api.deploy.resources.limits",
            "services.api.deploy.restart_policy",
            "services.api.deploy.update_config",
            "services.api.deploy.rollback_config",
            "services.api.configs",
            "configs",
        ],
    );
}

#[test]
fn a_media_server_at_home() {
    check_keys(
        "name: media
services:
  server:
    image: media/server
    container_name: media
    network_mode: host
    cap_add: [NET_ADMIN]
    security_opt: [no-new-privileges]
    devices: [/dev/dri]
    stop_signal: SIGINT
    user: '1000'
    hostname: media
    tmpfs: /transcode
    volumes: ['/srv/media:/media', '/dev/null']
    mem_limit: 2g
    privileged: true
",
        &[
            "services.server.image",
            "services.server.container_name",
            "services.server.network_mode",
            "services.server.cap_add",
            "services.server.security_opt",
            "services.server.devices",
            "services.server.stop_signal",
            "services.server.user",
            "services.server.hostname",
            "services.server.tmpfs",
            "services.server.volumes./media",
            "services.server.volumes[1]",
            "services.server.mem_limit",
            "services.server.privileged",
        ],
    );
}

/// A file that Compose and orchestrate both read: what only developers start has a profile.
#[test]
fn a_file_for_two_programs() {
    let text = "name: blog
services:
  app:
    x-orchestrate: {unit: blog@.service}
    environment: {DB_HOST: '${DB_HOST:-db}'}
    deploy: {replicas: 3, placement: {preferences: [{spread: node.labels.rack}]}}
  mailcatcher:
    image: mailcatcher
    profiles: [dev]
    ports: ['1080:1080']
";
    assert_eq!(read(&Input::of(text)).expect("right").manifest.services.len(), 1);
}
