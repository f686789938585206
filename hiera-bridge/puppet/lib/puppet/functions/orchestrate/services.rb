# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The instances of a service: host, address, addresses, port, tags, meta and health of each, by the name of the host.
#
# @param name The service
# @param level `addressable`: whose address is known, the default; `functional`: which works
# @param tag Only those with this tag
# @param options See orchestrate.yaml
# @example Every web server
#   orchestrate::services('web').each |$instance| { notice($instance['address']) }
Puppet::Functions.create_function(:'orchestrate::services') do
  include PuppetX::Orchestrate::Asking

  dispatch :services do
    param 'String[1]', :name
    optional_param "Optional[Enum['addressable', 'functional']]", :level
    optional_param 'Optional[String[1]]', :tag
    optional_param 'Hash', :options
    return_type 'Array[Hash]'
  end

  def services(name, level = nil, tag = nil, options = {})
    ask({ 'ask' => 'services', 'name' => name, 'level' => level, 'tag' => tag }, options)
  end
end
