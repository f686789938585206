# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The hosts of a role, sorted: those that have the service of its name.
#
# @param role The role
# @param options See orchestrate.yaml
# @example
#   orchestrate::hosts('web')
Puppet::Functions.create_function(:'orchestrate::hosts') do
  include PuppetX::Orchestrate::Asking

  dispatch :hosts do
    param 'String[1]', :role
    optional_param 'Hash', :options
    return_type 'Array[String]'
  end

  def hosts(role, options = {})
    ask({ 'ask' => 'hosts', 'role' => role }, options)
  end
end
