# frozen_string_literal: true

require_relative 'bridge'

module PuppetX
  module Orchestrate
    # What the backends of Hiera have in common.
    module Backend
      # Of the options that Hiera hands over these are its own.
      OF_HIERA = %w[uri].freeze

      # Yields the bridge and the name of the compile; `not_found` takes the place of a missing catalog if the site wants
      # it so.
      def with_bridge(options, context)
        bridge = Bridge.with(options.reject { |name, _| OF_HIERA.include?(name) })
        compile = context.cache_has_key('compile') ? context.cached_value('compile') : context.cache('compile', fresh_name)
        yield bridge, compile
      rescue Unanswered => e
        context.not_found if bridge && bridge.settings['when_missing'] == 'not_found' && !File.exist?(bridge.settings['path'])
        raise Puppet::DataBinding::LookupError, "#{self.class.name}: #{e.message}"
      end

      private

      # The cache of a context lives for one compile.
      def fresh_name
        "hiera-#{Process.pid}-#{Process.clock_gettime(Process::CLOCK_MONOTONIC, :nanosecond)}"
      end
    end
  end
end
