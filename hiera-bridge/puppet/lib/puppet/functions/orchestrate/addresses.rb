# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The addresses of a service, sorted.
#
# @param name The service
# @param interface All addresses of this interface; without it the one address of each host that others should use
# @param level `addressable`: whose address is known, the default; `functional`: which works
# @param tag Only those with this tag
# @param options See orchestrate.yaml
# @example The members of a cluster
#   $members = orchestrate::addresses('rabbitmq', 'eth0')
Puppet::Functions.create_function(:'orchestrate::addresses') do
  include PuppetX::Orchestrate::Asking

  dispatch :addresses do
    param 'String[1]', :name
    optional_param 'Optional[String[1]]', :interface
    optional_param "Optional[Enum['addressable', 'functional']]", :level
    optional_param 'Optional[String[1]]', :tag
    optional_param 'Hash', :options
    return_type 'Array[String]'
  end

  def addresses(name, interface = nil, level = nil, tag = nil, options = {})
    question = { 'ask' => 'addresses', 'name' => name, 'interface' => interface, 'level' => level, 'tag' => tag }
    ask(question, options)
  end
end
