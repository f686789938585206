# @summary A service of this host, which the agent publishes and checks.
#
# The file is in Consul's form, and the agent reads it as soon as it is there.
#
# @param ensure Whether the host has it
# @param service_name The service
# @param port Its port
# @param tags Its tags
# @param address The address that others should use, if not the host's
# @param meta Free values that go with it
# @param check_command A command line that says how it is: 0 passing, 1 warning, else critical
# @param check_args The same as a list, run without a shell
# @param check_http A URL that is asked
# @param check_tcp Address and port to which it connects
# @param ttl For how long a result counts that is told from outside
# @param interval Time between two checks
# @param timeout Most time for one
# @param directory Where the agent reads service files
# @example
#   orchestrate::service { 'web': port => 80, check_http => 'http://127.0.0.1/health' }
define orchestrate::service (
  Enum['present', 'absent']     $ensure        = 'present',
  String[1]                     $service_name  = $name,
  Optional[Integer[1, 65535]]   $port          = undef,
  Array[String[1]]              $tags          = [],
  Optional[String[1]]           $address       = undef,
  Hash[String[1], String]       $meta          = {},
  Optional[String[1]]           $check_command = undef,
  Optional[Array[String[1], 1]] $check_args    = undef,
  Optional[String[1]]           $check_http    = undef,
  Optional[String[1]]           $check_tcp     = undef,
  Optional[String[1]]           $ttl           = undef,
  String[1]                     $interval      = '10s',
  Optional[String[1]]           $timeout       = undef,
  Pattern[/\A\//]               $directory     = '/etc/orchestrate/services.d',
) {
  $ways = [
    { 'script' => $check_command }, { 'args' => $check_args }, { 'http' => $check_http }, { 'tcp' => $check_tcp },
  ].filter |$way| { $way.values[0] =~ NotUndef }
  $timed = $ways.map |$way| { $way + { 'interval' => $interval, 'timeout' => $timeout } }
  $told = $ttl ? { undef => [], default => [{ 'ttl' => $ttl }] }
  $meta_or_none = $meta.empty ? { true => undef, default => $meta }
  $definition = {
    'name'    => $service_name,
    'port'    => $port,
    'tags'    => $tags,
    'address' => $address,
    'meta'    => $meta_or_none,
    'checks'  => $timed + $told,
  }
  $file = $ensure ? { 'present' => 'file', default => 'absent' }
  file { "${directory}/${title}.json":
    ensure  => $file,
    owner   => 'root',
    group   => 'root',
    mode    => '0644',
    content => orchestrate::json({ 'service' => $definition }),
  }
}
