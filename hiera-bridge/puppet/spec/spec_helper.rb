# frozen_string_literal: true

# Run by `make test`, which names the helper that was built: ORCHESTRATE_HIERA=… rspec
require 'rspec-puppet'
require 'fileutils'
require 'tmpdir'

module_root = File.expand_path('..', __dir__)
modules = Dir.mktmpdir
FileUtils.ln_s(module_root, File.join(modules, 'orchestrate'))
at_exit { FileUtils.remove_entry(modules) }

RSpec.configure do |config|
  config.module_path = modules
  config.strict_variables = true
end
