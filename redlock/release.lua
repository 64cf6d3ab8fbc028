local answers = {}
for i = 1, #KEYS do
  local holder = redis.pcall('GET', KEYS[i])
  if holder == ARGV[i] then
    answers[i] = redis.pcall('DEL', KEYS[i])
  else
    answers[i] = type(holder) == 'table' and holder or 0
  end
end
return answers
