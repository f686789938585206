# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# Host and port of each instance behind a name of the agent's zone: target, port, priority and weight, sorted.
#
# @param name The name, with its domain
# @param options See orchestrate.yaml
# @example
#   orchestrate::srv('_web._tcp.service.consul').each |$found| { notice("${found['target']}:${found['port']}") }
Puppet::Functions.create_function(:'orchestrate::srv') do
  include PuppetX::Orchestrate::Asking

  dispatch :srv do
    param 'String[1]', :name
    optional_param 'Hash', :options
    return_type 'Array[Struct[{target => String, port => Integer, priority => Integer, weight => Integer}]]'
  end

  def srv(name, options = {})
    ask({ 'ask' => 'srv', 'name' => name }, options)
  end
end
