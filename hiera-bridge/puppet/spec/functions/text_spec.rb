# frozen_string_literal: true

require_relative '../spec_helper'

describe 'orchestrate::toml' do
  {
    {} => '',
    { 'role' => 'web', 'nothing' => nil } => "role = \"web\"\n",
    # What is plain stands before tables, whatever the order.
    { 'store' => { 'endpoints' => %w[a:1 b:2] }, 'role' => "a \"b\"\n" } =>
      "role = \"a \\\"b\\\"\\n\"\n\n[store]\nendpoints = [\"a:1\", \"b:2\"]\n",
    { 'apply' => [{ 'name' => 'one', 'done_codes' => [0, 2] }, { 'name' => 'two' }] } =>
      "\n[[apply]]\nname = \"one\"\ndone_codes = [0, 2]\n\n[[apply]]\nname = \"two\"\n",
    { 'labels' => { 'rack 1' => true } } => "\n[labels]\n\"rack 1\" = true\n",
    { 'store' => { 'more' => { 'a' => 1 } } } => "\n[store]\nmore = { a = 1 }\n"
  }.each do |settings, text|
    it { is_expected.to run.with_params(settings).and_return(text) }
  end
  it { is_expected.to run.with_params('password' => sensitive('x')).and_raise_error(/is secret/) }
end

describe 'orchestrate::json' do
  it { is_expected.to run.with_params('a' => { 'b' => nil, 'c' => [1] }).and_return("{\n  \"a\": {\n    \"c\": [\n      1\n    ]\n  }\n}\n") }
end
