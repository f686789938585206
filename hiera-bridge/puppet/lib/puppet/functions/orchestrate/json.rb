# frozen_string_literal: true

require 'json'

# A value as JSON with a line for each part, for files that people read too. What is undef is left out.
#
# @param value The value
# @example
#   orchestrate::json({ 'service' => { 'name' => 'web' } })
Puppet::Functions.create_function(:'orchestrate::json') do
  dispatch :json do
    param 'Data', :value
    return_type 'String'
  end

  def json(value)
    "#{JSON.pretty_generate(without_undef(value))}\n"
  end

  def without_undef(value)
    case value
    when Hash then value.compact.transform_values { |each| without_undef(each) }
    when Array then value.map { |each| without_undef(each) }
    else value
    end
  end
end
