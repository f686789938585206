# frozen_string_literal: true

require_relative '../../puppet_x/orchestrate/bridge'

Puppet::Type.newtype(:orchestrate_blocker) do
  @doc = <<~DOC
    Waits, while the catalog is applied, until so many instances of a service are functional; what requires it is applied
    after that, or skipped when they did not come. The agent on this host is asked. With `--noop` it looks and does not wait.

        orchestrate_blocker { 'mysql': count => 2 } -> Class['site::app']
  DOC

  newparam(:name, namevar: true) do
    desc 'The service.'
  end

  newparam(:count) do
    desc 'How many.'
    defaultto 1
    munge { |value| Integer(value) }
  end

  newparam(:level) do
    desc 'At which level they count.'
    newvalues(:functional, :addressable)
    defaultto :functional
  end

  newparam(:tag_of_service) do
    desc 'Only instances with this tag count.'
  end

  newparam(:tries) do
    desc 'How often it looks.'
    defaultto 30
    munge { |value| Integer(value) }
  end

  newparam(:try_sleep) do
    desc 'Seconds between two looks.'
    defaultto 20
    munge { |value| Float(value) }
  end

  newparam(:options) do
    desc 'See orchestrate.yaml. Unlike elsewhere an answer that is too old is none, unless when_older says warn here.'
    defaultto({})
  end

  newproperty(:ensure) do
    desc 'Whether they are there.'
    newvalue(:ready)
    defaultto :ready

    def retrieve
      resource.ready? ? :ready : :absent
    end

    def sync
      resource.wait
      :orchestrate_ready
    end
  end

  def ready?
    @trouble = nil
    question = {
      'ask' => 'ready', 'live' => true, 'name' => self[:name], 'count' => self[:count],
      'level' => self[:level].to_s, 'tag' => self[:tag_of_service]
    }
    PuppetX::Orchestrate::Bridge.with({ 'when_older' => 'fail' }.merge(self[:options])).ask(question.compact)
  rescue PuppetX::Orchestrate::Unanswered => e
    # The agent may be starting.
    @trouble = e.message
    false
  end

  # It has been looked once before this is called.
  def wait
    (self[:tries] - 1).times do
      sleep(self[:try_sleep])
      return if ready?
    end
    what = "#{self[:count]} of #{self[:name]} #{self[:level]}"
    raise Puppet::Error, "gave up waiting for #{what} after #{self[:tries]} looks#{@trouble && ": #{@trouble}"}"
  end
end
