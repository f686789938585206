# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# The name of the host that has an address, or undef.
#
# @param address IPv4 or IPv6
# @param options See orchestrate.yaml
# @example
#   orchestrate::reverse('10.0.0.5')
Puppet::Functions.create_function(:'orchestrate::reverse') do
  include PuppetX::Orchestrate::Asking

  dispatch :reverse do
    param 'String[1]', :address
    optional_param 'Hash', :options
    return_type 'Optional[String]'
  end

  def reverse(address, options = {})
    ask({ 'ask' => 'reverse', 'address' => address }, options)
  end
end
