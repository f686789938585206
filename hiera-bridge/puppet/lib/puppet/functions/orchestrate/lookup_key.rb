# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/backend'

# A backend of Hiera: `services::<service>::<interface>` is the list of addresses, one for each host, and
# `services_all::<service>::<interface>` all of them, from the catalog that the agent keeps. Every other key is not found. Options are those of orchestrate.yaml; Hiera takes `path` for its own, which has to exist.
Puppet::Functions.create_function(:'orchestrate::lookup_key') do
  include PuppetX::Orchestrate::Backend

  dispatch :lookup_key do
    param 'String[1]', :key
    param 'Hash[String[1], Any]', :options
    param 'Puppet::LookupContext', :context
  end

  def lookup_key(key, options, context)
    # Hiera asks every backend for lookup_options, and for each key of a class.
    context.not_found unless key.start_with?('services::', 'services_all::')
    found = with_bridge(options, context) { |bridge, compile| bridge.ask({ 'ask' => 'entry', 'key' => key }, compile) }
    found.nil? ? context.not_found : found
  end
end
