# frozen_string_literal: true

require 'resolv'

# A backend of Hiera for foreign names: `dns::<name>` is the sorted list of addresses that a resolver gives. This asks the
# network during a compile; names of the agent's zone are better asked by orchestrate::dns, which does not.
#
# Options: `nameserver` as [address, port], else those of the machine; `timeout` in seconds for each of them, 2 if not
# given; `domain` is added to names without a dot. Search domains are not used: another name would answer.
Puppet::Functions.create_function(:'orchestrate::hiera_dns') do
  dispatch :hiera_dns do
    param 'String[1]', :key
    param 'Struct[{Optional[nameserver] => Tuple[String[1], Integer], Optional[timeout] => Numeric,
                   Optional[domain] => String[1], Optional[uri] => String}]', :options
    param 'Puppet::LookupContext', :context
  end

  def hiera_dns(key, options, context)
    context.not_found unless key.start_with?('dns::')
    name = key.delete_prefix('dns::')
    name = "#{name}.#{options['domain']}" if options['domain'] && !name.include?('.')
    found = [Resolv::DNS::Resource::IN::A, Resolv::DNS::Resource::IN::AAAA].flat_map { |kind| addresses(name, kind, options) }
    found.empty? ? context.not_found : found.uniq.sort
  end

  def addresses(name, kind, options)
    servers = options['nameserver'] ? [options['nameserver']] : machines_own
    answer = servers.lazy.filter_map { |server| ask(server, name, kind, options.fetch('timeout', 2)) }.first
    raise Puppet::DataBinding::LookupError, "#{name}: no resolver answers; asked #{servers.inspect}" unless answer

    known = [Resolv::DNS::RCode::NoError, Resolv::DNS::RCode::NXDomain]
    raise Puppet::DataBinding::LookupError, "#{name}: the resolver answers #{answer.rcode}" unless known.include?(answer.rcode)

    answer.answer.filter_map { |_, _, data| data.address.to_s if data.is_a?(kind) }
  end

  def machines_own
    Resolv::DNS::Config.default_config_hash.fetch(:nameserver, []).map { |address| [address, Resolv::DNS::Port] }
  end

  # One question to one server, or nil: Resolv::DNS itself takes a server that is away for a name that is not there.
  def ask(server, name, kind, timeout)
    question = Resolv::DNS::Message.new
    question.rd = 1
    question.add_question(Resolv::DNS::Name.create("#{name.chomp('.')}."), kind)
    answer = by(Resolv::DNS::Requester::ConnectedUDP, server, question, timeout)
    answer.tc == 1 ? by(Resolv::DNS::Requester::TCP, server, question, timeout) : answer
  rescue Resolv::ResolvTimeout, SystemCallError
    nil
  end

  def by(way, server, question, timeout)
    requester = way.new(*server)
    requester.request(requester.sender(question, nil), timeout).first
  ensure
    requester&.close
  end
end
