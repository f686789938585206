# frozen_string_literal: true

Puppet::Type.newtype(:orchestrate_fail) do
  @doc = <<~DOC
    Fails while the catalog is applied: what requires it is skipped, everything else is applied.

        if empty($seeds) { orchestrate_fail { 'no seed yet': } -> Class['site::cluster'] }
  DOC

  newparam(:name, namevar: true) do
    desc 'The message.'
  end

  newproperty(:ensure) do
    desc 'It never is.'
    newvalue(:passed)
    defaultto :passed

    def retrieve
      :failed
    end

    def sync
      raise Puppet::Error, resource[:name]
    end
  end
end
