# @summary The agent on this host: package, settings, unit.
#
# @param settings What stands in agent.d/puppet.toml, over agent.toml; see docs/configuration.md; files for TLS that it names have to be there before, and good
# @param manage_package Whether the package is installed
# @param package_ensure As for a package
# @param manage_service Whether the unit is enabled and runs
# @param directory Where settings are
# @param program The agent, which checks the settings before they are put in place
# @example
#   class { 'orchestrate::agent':
#     settings => {
#       'role'  => 'web',
#       'store' => { 'endpoints' => ['etcd1:2379', 'etcd2:2379', 'etcd3:2379'] },
#       'apply' => [{ 'name' => 'puppet', 'command' => ['/usr/bin/puppet', 'apply', '/etc/puppet/site.pp'] }],
#     },
#   }
class orchestrate::agent (
  Hash[String[1], Any] $settings       = {},
  Boolean              $manage_package = true,
  String[1]            $package_ensure = 'installed',
  Boolean              $manage_service = true,
  Pattern[/\A\//]      $directory      = '/etc/orchestrate',
  Pattern[/\A\//]      $program        = '/usr/sbin/orchestrate-agent',
) {
  $owned = { 'owner' => 'root', 'group' => 'root' }
  if $manage_package {
    package { 'orchestrate': ensure => $package_ensure }
    Package['orchestrate'] -> File["${directory}/agent.d"]
  }
  file { ["${directory}/agent.d", "${directory}/services.d"]:
    ensure => directory,
    mode   => '0755',
    *      => $owned,
  }
  file { "${directory}/agent.d/puppet.toml":
    ensure       => file,
    mode         => '0644',
    content      => orchestrate::toml($settings),
    validate_cmd => "${program} --check-config --config %",
    *            => $owned,
  }
  if $manage_service {
    # What is bound at start waits for a restart, which the agent says; the steps of a version go on meanwhile.
    service { 'orchestrate-agent':
      ensure    => running,
      enable    => true,
      restart   => '/bin/systemctl reload orchestrate-agent',
      subscribe => File["${directory}/agent.d/puppet.toml"],
    }
  }
}
