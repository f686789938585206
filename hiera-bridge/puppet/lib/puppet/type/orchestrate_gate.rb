# frozen_string_literal: true

require_relative '../../puppet_x/orchestrate/bridge'

Puppet::Type.newtype(:orchestrate_gate) do
  @doc = <<~DOC
    What requires it is applied only when a value that operators keep in the store is the one named; else it is skipped. The
    agent on this host is asked, while the catalog is applied. Where it does not answer the gate stays shut.

        orchestrate_gate { 'schema-change': value => 'go' } -> Exec['migrate']
  DOC

  newparam(:name, namevar: true) do
    desc 'The name of the value.'
  end

  newparam(:value) do
    desc 'What it has to be.'
  end

  newparam(:options) do
    desc 'See orchestrate.yaml. Unlike elsewhere an answer that is too old is none, unless when_older says warn here.'
    defaultto({})
  end

  validate do
    raise Puppet::Error, 'value is missing' unless self[:value]
  end

  newproperty(:ensure) do
    desc 'Whether it is open.'
    newvalue(:open)
    defaultto :open

    def retrieve
      resource.found == resource[:value] ? :open : :shut
    end

    def sync
      raise Puppet::Error, "#{resource[:name]} is #{resource.found.inspect}, not #{resource[:value].inspect}"
    end
  end

  def found
    options = { 'when_older' => 'fail' }.merge(self[:options])
    @found ||= [PuppetX::Orchestrate::Bridge.with(options).ask({ 'ask' => 'key', 'name' => self[:name] })]
    @found.first
  rescue PuppetX::Orchestrate::Unanswered => e
    raise Puppet::Error, e.message
  end
end
