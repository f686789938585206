# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The first of what orchestrate::addresses gives, or undef if there is none.
#
# @param name The service
# @param interface All addresses of this interface; without it the one address of each host that others should use
# @param level `addressable`: whose address is known, the default; `functional`: which works
# @param tag Only those with this tag
# @param options See orchestrate.yaml
# @example One to begin with
#   $seed = orchestrate::first_address('rabbitmq', 'eth0')
Puppet::Functions.create_function(:'orchestrate::first_address') do
  include PuppetX::Orchestrate::Asking

  dispatch :first_address do
    param 'String[1]', :name
    optional_param 'Optional[String[1]]', :interface
    optional_param "Optional[Enum['addressable', 'functional']]", :level
    optional_param 'Optional[String[1]]', :tag
    optional_param 'Hash', :options
    return_type 'Optional[String]'
  end

  def first_address(name, interface = nil, level = nil, tag = nil, options = {})
    question = { 'ask' => 'addresses', 'name' => name, 'interface' => interface, 'level' => level, 'tag' => tag }
    ask(question, options).first
  end
end
