# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# Whether at least so many instances of a service are functional, as far as the catalog knows while compiling. What has
# to wait until they are is the type orchestrate_blocker.
#
# @param name The service
# @param count How many
# @param options See orchestrate.yaml
# @example
#   if orchestrate::ready('mysql', 2) { include site::replication }
Puppet::Functions.create_function(:'orchestrate::ready') do
  include PuppetX::Orchestrate::Asking

  dispatch :ready do
    param 'String[1]', :name
    optional_param 'Integer[0]', :count
    optional_param 'Hash', :options
    return_type 'Boolean'
  end

  def ready(name, count = 1, options = {})
    ask({ 'ask' => 'ready', 'name' => name, 'count' => count }, options)
  end
end
