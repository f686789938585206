# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/backend'

# A backend of Hiera that gives all of `services::<service>::<interface>` and `services_all::…` at once; for small catalogs, and for merges.
Puppet::Functions.create_function(:'orchestrate::data_hash') do
  include PuppetX::Orchestrate::Backend

  dispatch :data_hash do
    param 'Hash[String[1], Any]', :options
    param 'Puppet::LookupContext', :context
  end

  def data_hash(options, context)
    with_bridge(options, context) { |bridge, compile| bridge.ask({ 'ask' => 'entries' }, compile) }
  end
end
