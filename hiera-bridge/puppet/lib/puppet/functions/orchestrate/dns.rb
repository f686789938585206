# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The addresses behind a name of the agent's zone, sorted; none if there is no such name. The cached catalog answers:
# only functional instances count, as in DNS itself.
#
# @param name The name, with its domain
# @param options See orchestrate.yaml
# @example
#   orchestrate::dns('mysql.service.consul')
Puppet::Functions.create_function(:'orchestrate::dns') do
  include PuppetX::Orchestrate::Asking

  dispatch :dns do
    param 'String[1]', :name
    optional_param 'Hash', :options
    return_type 'Array[String]'
  end

  def dns(name, options = {})
    ask({ 'ask' => 'dns', 'name' => name }, options)
  end
end
