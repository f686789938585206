# frozen_string_literal: true

require_relative '../../../puppet_x/orchestrate/asking'

# A value that operators keep in the store, or undef; the agent is asked, so this fails while it does not run.
#
# @param name Its name
# @param options See orchestrate.yaml
# @example
#   if orchestrate::key('backups') == 'off' { notice('no backups today') }
Puppet::Functions.create_function(:'orchestrate::key') do
  include PuppetX::Orchestrate::Asking

  dispatch :key do
    param 'String[1]', :name
    optional_param 'Hash', :options
    return_type 'Optional[String]'
  end

  def key(name, options = {})
    ask({ 'ask' => 'key', 'name' => name }, options)
  end
end
