# frozen_string_literal: true

require 'json'
require 'open3'

module PuppetX
  module Orchestrate
    # What could not be answered, and why.
    class Unanswered < StandardError; end

    # Asks the helper `orchestrate-hiera`, which is started once and answers a question per line. It alone knows what
    # the catalog means; nothing of that is repeated in Ruby.
    class Bridge
      DEFAULTS = {
        'helper' => '/usr/bin/orchestrate-hiera',
        'path' => '/var/lib/orchestrate/catalog.json',
        'socket' => '/run/orchestrate/agent.sock',
        # Seconds for which the store may be out of sight before `when_older` says what becomes of an answer.
        'max_age' => 900,
        'when_older' => 'warn',
        # What the backends of Hiera do when there is no catalog: `fail`, or `not_found`.
        'when_missing' => 'fail'
      }.freeze
      CHOICES = { 'when_older' => %w[warn fail], 'when_missing' => %w[fail not_found] }.freeze

      @bridges = {}
      @known = {}
      @lock = Mutex.new

      class << self
        # The bridge with these options; what they do not say comes from orchestrate.yaml beside puppet.conf.
        def with(options = {})
          path = File.join(Puppet[:confdir], 'orchestrate.yaml')
          written = File.mtime(path) if File.exist?(path)
          # A compile asks a thousand times.
          @lock.synchronize do
            @known[[options, path, written]] ||= begin
              settings = DEFAULTS.merge(written ? site_settings(path) : {}).merge(options)
              check(settings)
              @bridges[settings] ||= new(settings)
            end
          end
        end

        private

        def site_settings(path)
          found = Puppet::Util::Yaml.safe_load_file(path)
          raise Unanswered, "#{path}: not a mapping" unless found.is_a?(Hash)

          found
        end

        def check(settings)
          unknown = settings.keys - DEFAULTS.keys
          raise Unanswered, "no such option: #{unknown.join(', ')}; there are #{DEFAULTS.keys.join(', ')}" unless unknown.empty?

          CHOICES.each do |name, words|
            raise Unanswered, "#{name} is one of #{words.join(', ')}" unless words.include?(settings[name])
          end
          raise Unanswered, 'max_age is a number of seconds' unless settings['max_age'].is_a?(Integer)
        end
      end

      attr_reader :settings

      def initialize(settings)
        @settings = settings
        @lock = Mutex.new
        @warned_in = nil
      end

      # The answer to a question, or nil if there is no such thing. All questions of one compile, which the caller
      # names, are answered from the same catalog.
      def ask(question, compile = nil)
        question = question.merge('compile' => compile) if compile
        answer = JSON.parse(exchange(JSON.generate(question)))
        raise Unanswered, answer['error'] if answer.key?('error')

        judge_age(answer['age_seconds'], compile)
        answer['value']
      end

      private

      def judge_age(age, compile)
        return if age <= settings['max_age']

        text = "the store has not confirmed the catalog for #{age} s"
        raise Unanswered, "#{text}, and at most #{settings['max_age']} s are allowed" if settings['when_older'] == 'fail'

        # Once for each compile, not for each of a thousand lookups.
        return if compile && @warned_in == compile

        @warned_in = compile
        Puppet.warning("orchestrate: #{text}; going on with what was known then")
      end

      def exchange(line)
        @lock.synchronize do
          begin
            converse(line)
          rescue Errno::EPIPE, EOFError
            # It ended since the last question.
            start
            converse(line)
          end
        end
      rescue SystemCallError, EOFError => e
        raise Unanswered, "#{settings['helper']}: #{e.message}"
      end

      def converse(line)
        start unless @input
        @input.puts(line)
        @output.readline
      end

      def start
        [@input, @output].compact.each(&:close)
        @input = @output = nil
        command = [settings['helper'], '--file', settings['path'], '--socket', settings['socket']]
        # Its errors belong on the error output of the run.
        @input, @output, = Open3.popen2(*command)
        @input.sync = true
      end
    end
  end
end
