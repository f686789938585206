# frozen_string_literal: true

require 'json'

# Settings of the agent as TOML: texts, numbers, booleans and lists of them, tables, and lists of tables. What is undef is
# left out.
#
# @param settings The settings
# @example
#   orchestrate::toml({ 'role' => 'web', 'store' => { 'endpoints' => ['etcd1:2379'] } })
Puppet::Functions.create_function(:'orchestrate::toml') do
  dispatch :toml do
    param 'Hash[String[1], Any]', :settings
    return_type 'String'
  end

  def toml(settings)
    settings = settings.compact
    plain, tables = settings.partition { |_, value| !table?(value) && !tables?(value) }
    # Plain values stand before the first table: what follows one belongs to it.
    text = plain.map { |name, value| line(name, value) }.join
    tables.each do |name, value|
      heads = tables?(value) ? value.map { |each| ["[[#{key(name)}]]", each] } : [["[#{key(name)}]", value]]
      heads.each { |head, content| text += "\n#{head}\n" + content.compact.map { |n, v| line(n, v) }.join }
    end
    text
  end

  def table?(value)
    value.is_a?(Hash)
  end

  def tables?(value)
    value.is_a?(Array) && !value.empty? && value.all?(Hash)
  end

  def line(name, value)
    "#{key(name)} = #{literal(value, name)}\n"
  end

  def key(name)
    name.match?(/\A[A-Za-z0-9_-]+\z/) ? name : JSON.generate(name)
  end

  # Texts, numbers, booleans and lists are written alike in JSON and TOML.
  def literal(value, name)
    case value
    when Puppet::Pops::Types::PSensitiveType::Sensitive
      raise Puppet::Error, "orchestrate::toml: #{name} is secret; the agent reads secrets from files, see password_file"
    when Hash then "{ #{value.compact.map { |n, v| "#{key(n)} = #{literal(v, n)}" }.join(', ')} }"
    when Array then "[#{value.map { |each| literal(each, name) }.join(', ')}]"
    when String, Integer, Float, true, false then JSON.generate(value)
    else raise Puppet::Error, "orchestrate::toml: #{name} is of a type that settings do not have: #{value.class}"
    end
  end
end
