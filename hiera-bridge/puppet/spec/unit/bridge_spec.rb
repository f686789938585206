# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../../lib/puppet_x/orchestrate/bridge'

describe PuppetX::Orchestrate::Bridge do
  let(:directory) { Dir.mktmpdir }
  let(:path) { File.join(directory, 'catalog.json') }
  let(:question) { { 'ask' => 'hosts', 'role' => 'web' } }

  before { write('w1') }
  after { FileUtils.remove_entry(directory) }

  def write(host)
    record = { 'host' => host, 'addresses' => ['10.0.0.1'] }
    catalog = { 'format' => 1, 'revision' => 1, 'services' => { 'web' => [{ 'record' => record, 'leased' => true }] } }
    File.write("#{path}.new", JSON.generate(catalog))
    File.rename("#{path}.new", path)
  end

  def bridge(options = {})
    described_class.with({ 'helper' => ENV.fetch('ORCHESTRATE_HIERA'), 'path' => path }.merge(options))
  end

  it 'starts the helper once for the same options' do
    expect(bridge).to be(bridge)
    expect(bridge('max_age' => 5)).not_to be(bridge)
  end

  it 'answers all questions of a compile from one catalog' do
    expect(bridge.ask(question, 'a')).to eq(['w1'])
    write('w2')
    expect(bridge.ask(question, 'a')).to eq(['w1'])
    expect(bridge.ask(question, 'b')).to eq(['w2'])
  end

  it 'starts the helper again when it was killed' do
    expect(bridge.ask(question)).to eq(['w1'])
    system('pkill', '-KILL', '-f', path)
    expect(bridge.ask(question)).to eq(['w1'])
  end

  it 'warns once for each compile of a catalog that is too old, or refuses it' do
    File.utime(Time.now, Time.now - 7200, path)
    expect(Puppet).to receive(:warning).with(/has not confirmed the catalog for 72/).twice
    3.times { expect(bridge.ask(question, 'a')).to eq(['w1']) }
    expect(bridge.ask(question, 'b')).to eq(['w1'])
    expect { bridge('when_older' => 'fail').ask(question) }.to raise_error(PuppetX::Orchestrate::Unanswered, /at most 900 s/)
    expect(bridge('max_age' => 8000, 'when_older' => 'fail').ask(question)).to eq(['w1'])
  end

  [
    [{ 'when_older' => 'perhaps' }, /when_older is one of warn, fail/],
    [{ 'max_age' => '5m' }, /max_age is a number of seconds/],
    [{ 'file' => '/x' }, /no such option: file/]
  ].each do |options, why|
    it("refuses #{options}") { expect { bridge(options) }.to raise_error(PuppetX::Orchestrate::Unanswered, why) }
  end

  it 'names the helper that cannot be started' do
    expect { bridge('helper' => '/no/such').ask(question) }.to raise_error(PuppetX::Orchestrate::Unanswered, %r{/no/such})
  end
end
