# frozen_string_literal: true

require_relative 'bridge'

module PuppetX
  module Orchestrate
    # What the functions of this module have in common: they are asked by a compile.
    module Asking
      # Asks the helper; `options` are the last argument of the function.
      def ask(question, options)
        Bridge.with(options || {}).ask(question.compact, compile)
      rescue Unanswered => e
        raise Puppet::Error, "#{self.class.name}: #{e.message}"
      end

      private

      # Names the compile, so that all of its questions are answered from the same catalog.
      def compile
        scope = closure_scope
        scope.respond_to?(:compiler) && scope.compiler ? "compile-#{Process.pid}-#{scope.compiler.object_id}" : nil
      end
    end
  end
end
